//! The scheduler: chooses and claims in one committed command
