"""SSH tunnels."""
