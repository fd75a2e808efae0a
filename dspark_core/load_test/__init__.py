"""Throughput, waiting and verification under load: N users at once, method beside method."""
