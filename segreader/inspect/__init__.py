"""What ``segreader ls`` and ``inspect`` show: topics, partitions and segments, from listings and small files."""
