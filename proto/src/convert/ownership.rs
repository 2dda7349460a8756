//! Projects and creators of records.

use berth_domain::ownership::{CREATOR_LENGTH_MAX, Ownership, ProjectName};

use super::field::{self, Invalid};

/// Reads the name of a project; an empty one is absent.
///
/// # Errors
///
/// It is not a label in lower case.
pub fn read_project(value: &str, field: &str) -> Result<Option<ProjectName>, Invalid> {
    let name = (!value.is_empty()).then(|| ProjectName::new(value));
    name.transpose().map_err(|e| Invalid::here(e).within(field))
}

/// Returns the name of a project, or an empty text.
#[must_use]
pub fn write_project(project: Option<&ProjectName>) -> String {
    project.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn read(project: &str, creator: String) -> Result<Ownership, Invalid> {
    Ok(Ownership {
        project: read_project(project, "project")?,
        creator: field::text(creator, "creator", CREATOR_LENGTH_MAX)?,
    })
}
