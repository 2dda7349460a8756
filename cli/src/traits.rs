//! `berth trait`: the traits that providers may have. The word is reserved in Rust.

use berth_proto::placement::v1::catalog_service_client::CatalogServiceClient;
use berth_proto::placement::v1::{CreateTraitRequest, DeleteTraitRequest, ListTraitsRequest};

use crate::arguments::Trait as Verb;
use crate::output::Columns;
use crate::session::{Session, request_id};
use crate::{all_pages, call, output};

/// The traits of a page: as many as there may be, since each page is a read that a quorum confirms.
const PAGE_SIZE: i32 = 1000;

/// The columns of the list.
pub(crate) const COLUMNS: Columns<2, 0> = Columns {
    usual: ["trait", "origin"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { prefix, associated } => list(session, prefix, associated).await,
        Verb::Create { name } => {
            let request = CreateTraitRequest {
                name: name.clone(),
                request_id: request_id(None),
            };
            let response = call!(session, CatalogServiceClient, create_trait, request)?;
            let sentence = output::created("trait", &name, response.existed);
            session.done(&name, output::creation(response.existed), sentence)
        }
        Verb::Delete { name } => {
            let request = DeleteTraitRequest {
                name: name.clone(),
                request_id: request_id(None),
            };
            call!(session, CatalogServiceClient, delete_trait, request)?;
            session.done(&name, "deleted", format!("trait {name} is deleted"))
        }
    }
}

async fn list(session: &Session, prefix: Option<String>, associated: bool) -> anyhow::Result<()> {
    let request = ListTraitsRequest {
        prefix: prefix.unwrap_or_default(),
        associated,
        page_size: PAGE_SIZE,
        ..Default::default()
    };
    let all = all_pages!(session, CatalogServiceClient, list_traits, request, traits);
    let rows = all.into_iter().map(|one| {
        let standard = one.create_time.is_none();
        (one.name, standard)
    });
    output::names(
        &COLUMNS,
        rows,
        session.for_programs(),
        "there is no such trait",
    )
}
