//! The choice of a host, ordered and explained, pure
