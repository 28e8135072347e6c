"""What a team tests its own releases with: checks, a pytest plugin, and the engine in memory."""
