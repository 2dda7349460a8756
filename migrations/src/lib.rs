//! Numbered, idempotent changes of what lies on disk
