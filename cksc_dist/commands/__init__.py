"""What the commands of ``cksc`` do: one module each, free of parsing."""
