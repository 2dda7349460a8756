//! The integration tests of what the servers have in common, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `access` | the table of roles and methods against the services and the document |
//! | `bounds` | what one caller may hold of a server, on real sockets |
//! | `encryption` | the flags and keys of certificates |
//! | `watching` | metrics and health over HTTP, and what hostile clients of them get |
//! | `limits` | the methods that take more than a request, and the document of the limits |

mod access;
mod bounds;
mod encryption;
mod limits;
mod watching;
