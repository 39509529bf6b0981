"""Changes kv_hit from a jump to a breakpoint and back, a stage at a time, with requests between.

    python docs/course/stages.py PID PORT MODE [STAGES]

With STAGES the script is killed after so many stages, as if the controller had crashed.
"""

import os
import signal
import subprocess
import sys

import markerjit

LOAD = "markerjit/_native/demo/kvload --requests 100 --connections 1 --keys 50 --port"

pid, port, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
last = int(sys.argv[4]) if len(sys.argv) > 4 else 0


def show(steps):
    for step in steps:
        print(f"  {step.number}. {step.sentence}")


with markerjit.attach(pid) as session:
    (site,) = session.sites("kv_hit")
    with session.stepping("kv_hit", mode=mode) as stepper:
        print("before the first stage")
        show(stepper.made)
        while steps := stepper.step():
            print(f"stage {stepper.done}")
            show(steps)
            print(f"  the site holds {session.read(site.address, 7).hex(' ')}")
            subprocess.run([*LOAD.split(), port], check=True, stdout=subprocess.DEVNULL)
            (marker,) = session.statistics("kv_hit")
            print(f"  100 requests were answered; kv_hit has {marker.hits} hits", flush=True)
            if stepper.done == last:
                os.kill(os.getpid(), signal.SIGKILL)
