"""What the JVMs of tests are started with: most live for seconds, in which compiling well does not pay."""

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
