"""Administration: what this installation adopts, exports, relocates or rebuilds.

``survey`` looks at tables that may be adopted and at where they lie; ``adoption`` takes them over,
``export`` leaves everything as plain registrations, ``relocation`` follows a move or turns a copy
into an installation of its own, ``rebuild`` makes a lost log again from shards and registrations.
Nothing here plans or copies rows: that stays with planner and reconciler.
"""
