"""What a step costs on this machine: measured once, stored, read by the sessions that follow."""
