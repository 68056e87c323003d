"""Twisted protocols and factories for remoting frames: requests, pools, limits."""
