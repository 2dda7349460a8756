//! The operator's and user's command
