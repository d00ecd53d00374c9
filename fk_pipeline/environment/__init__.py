"""The requirements on the machine: the Delta JARs (`jars`) and the checks of `fk-pipeline doctor` (`doctor`)."""
