"""The numbers of the fields of Perfetto's messages that we write and read.

Authority: protos/perfetto/trace/ of Perfetto v59.
"""

from __future__ import annotations

# Of a trace, and of a packet.
PACKET = 1
CLOCK_SNAPSHOT, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS = 6, 8, 10, 11, 12, 13
DEFAULTS, TRACK, FIRST, CLOCK_ID = 59, 60, 87, 58
CLEARED, NEEDS_STATE = 1, 2
REALTIME, MONOTONIC = 1, 3

# Of an event.
ANNOTATION, TYPE, NAME, TRACK_UUID, SOURCE = 4, 9, 10, 11, 34
NAME_TEXT = 23

# Of an annotation.
ANNOTATION_NAME = 1
BOOL, UINT, INT, DOUBLE, STRING, POINTER = 2, 3, 4, 5, 6, 7
ANNOTATION_NAME_TEXT = 10
