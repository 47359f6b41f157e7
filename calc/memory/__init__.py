"""What a device holds, byte by byte, and the moment at which it holds most."""
