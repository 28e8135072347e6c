"""A plan as people read it: verdict first, then what happens, what is at stake, what to decide."""
