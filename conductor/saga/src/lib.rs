//! Long operations as pure step machines
