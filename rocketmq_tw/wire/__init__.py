"""Frames, commands, codes, headers and bodies of the remoting protocol; pure."""
