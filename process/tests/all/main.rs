//! The integration tests of what the servers have in common, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `access` | the table of roles and methods against the services and the document |
//! | `encryption` | the flags and keys of certificates |

mod access;
mod encryption;
