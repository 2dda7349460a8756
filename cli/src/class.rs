//! `berth class`: the resource classes that providers may have.

use berth_proto::placement::v1::catalog_service_client::CatalogServiceClient;
use berth_proto::placement::v1::{
    CreateResourceClassRequest, DeleteResourceClassRequest, ListResourceClassesRequest,
    RenameResourceClassRequest,
};

use crate::arguments::Class as Verb;
use crate::output::Columns;
use crate::session::{Session, request_id};
use crate::{all_pages, call, output};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<2, 0> = Columns {
    usual: ["class", "origin"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => list(session).await,
        Verb::Create { class } => {
            let request = CreateResourceClassRequest {
                name: class.clone(),
                request_id: request_id(None),
            };
            let response = call!(
                session,
                CatalogServiceClient,
                create_resource_class,
                request
            )?;
            let sentence = output::created("resource class", &class, response.existed);
            session.done(&class, output::creation(response.existed), sentence)
        }
        Verb::Rename { class, new_name } => {
            let request = RenameResourceClassRequest {
                name: class.clone(),
                new_name: new_name.clone(),
                request_id: request_id(None),
            };
            call!(
                session,
                CatalogServiceClient,
                rename_resource_class,
                request
            )?;
            let sentence = format!("resource class {class} is called {new_name} from now on");
            session.done(&new_name, "renamed", sentence)
        }
        Verb::Delete { class } => {
            let request = DeleteResourceClassRequest {
                name: class.clone(),
                request_id: request_id(None),
            };
            call!(
                session,
                CatalogServiceClient,
                delete_resource_class,
                request
            )?;
            let sentence = format!("resource class {class} is deleted");
            session.done(&class, "deleted", sentence)
        }
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListResourceClassesRequest::default();
    let all = all_pages!(
        session,
        CatalogServiceClient,
        list_resource_classes,
        request,
        resource_classes
    );
    let rows = all.into_iter().map(|class| {
        let standard = class.create_time.is_none();
        (class.name, standard)
    });
    output::names(
        &COLUMNS,
        rows,
        session.for_programs(),
        "there is no resource class",
    )
}
