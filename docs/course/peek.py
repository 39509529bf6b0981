"""Prints the bytes at a marker's site, in the memory of a process and in the program's file.

    python docs/course/peek.py PID MARKER

markerjit says where the site is. The bytes are read here, and nothing is changed.
"""

import sys

import markerjit

pid, name = int(sys.argv[1]), sys.argv[2]

with markerjit.View(pid) as view:
    (site,) = view.sites(name)
size = site.body.end - site.address

with open(f"/proc/{pid}/mem", "rb") as memory:
    memory.seek(site.address)
    print(f"memory  {site.address:x}  {memory.read(size).hex(' ')}")

with open(f"/proc/{pid}/maps") as maps:
    for line in maps:
        bounds, _, offset, *_ = line.split()
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= site.address < end:
            place = site.address - start + int(offset, 16)

with open(f"/proc/{pid}/exe", "rb") as file:
    file.seek(place)
    print(f"file    {place:12x}  {file.read(size).hex(' ')}")
