//! The integration tests of the compute agent, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `agents` | two agents over gRPC |
//! | `contradictions` | configurations that contradict themselves or the machine |
//! | `process` | the program: messages, exit status, signals |

mod agents;
mod contradictions;
mod process;
