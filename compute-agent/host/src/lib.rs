//! Discovery of a host's CPUs, cells, sockets and pages from sysfs
