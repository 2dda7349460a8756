//! From where a provider or a consumer was taken over. See [`crate::import`], which re-exports it.

use serde::{Deserialize, Serialize};

use crate::id::Generation;

/// From where a provider or a consumer was taken over.
///
/// While the generation is still the one here, no request but the import has changed what it
/// counts: another import may write it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The name of the other Placement, as the importer gave it.
    pub source: String,
    /// The generation that it was given by the last import.
    pub generation: Generation,
}
