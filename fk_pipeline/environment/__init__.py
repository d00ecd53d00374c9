"""What the machine must offer: the Delta JARs (`jars`) and the checks of `fk-pipeline doctor` (`doctor`)."""
