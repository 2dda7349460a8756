//! The compute agent of one host
