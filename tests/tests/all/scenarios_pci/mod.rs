//! Guests with PCI functions through the whole system: schedulers, conductor and agents with
//! simulated hypervisors as processes, asked by the real command.
//!
//! | module | what |
//! |---|---|
//! | `policies` | which hosts a guest may be on under which policy: OpenStack Nova's tests, and the drawing of the socket policy |
//! | `cells` | guests without functions leave the cells that have some alone |
//! | `moves` | which guests are moved while they run, and which function becomes which |
//! | `names` | aliases: what is wrong with them, and who has which function |
//!
//! Where Nova gives a policy to a network port, the alias carries it here.

mod bench;
mod cells;
mod moves;
mod names;
mod policies;
