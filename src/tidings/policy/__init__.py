"""What may pass, and in what shape: the language that policies are written in, and its checks."""
