"""The workloads of the accuracy suites: plain training steps, loaded by name like anyone's."""
