//! Goal: the fleet and what is proven of it. Method: small random clusters of hosts with cells,
//! pages, PCI functions and persistent memory, beside rules that are written here anew.

pub(crate) mod draw;
mod oracle;
mod steps;
mod verdicts;
