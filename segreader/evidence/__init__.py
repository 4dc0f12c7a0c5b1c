"""What the files at hand prove: one function for each check, called by planners and by `segreader verify`."""
