"""What a gateway knows of remote segments: which there are, where they lie, who leads them, and how they are signed."""
