//! End-to-end tests: the real binary, real sockets, real nodes.
