//! The page as HTML: what others named stays text, the structure is that of a document, and some parts are
//! compared with files.

mod golden;
mod hostile;
mod markup;
mod sample;
mod structure;
