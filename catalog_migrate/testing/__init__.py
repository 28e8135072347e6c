"""Simulation: the engine in memory, crash points, random releases and schedules of failures."""
