//! Goal: what is planned to balance hosts, to make room on them and to fill them is what it says.
//! Method: small random clusters of hosts with cells, pages, PCI functions and persistent memory;
//! every plan is done again by the rules themselves, and compared with all that could be done.

mod count;
mod kept;
mod moves;
mod room;
mod rules;
