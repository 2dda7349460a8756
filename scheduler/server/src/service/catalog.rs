//! `berth.placement.v1.CatalogService`.

use std::collections::BTreeSet;

use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::standard;
use berth_proto::convert::Invalid;
use berth_proto::convert::field;
use berth_proto::convert::page::Page;
use berth_proto::convert::placement::{read_class, read_trait};
use berth_proto::placement::v1;
use berth_proto::placement::v1::catalog_service_server::CatalogService;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::{Caller, open};
use super::{refusal, write};
use crate::core::{Action, DecisionRequest};

/// Serves `CatalogService`.
pub(crate) struct CatalogApi(pub(crate) Context);

impl CatalogApi {
    async fn command(&self, caller: Caller, command: Command) -> Result<Reply, Status> {
        let request = DecisionRequest {
            principal: caller.principal,
            key: caller.key,
            validate_only: false,
            action: Action::Plain(command),
        };
        Ok(self.0.submit(request).await?.reply)
    }

    /// Carries out what answers with a class, and whether it was there before.
    async fn class(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<(Option<v1::ResourceClass>, bool), Status> {
        let Reply::Class { class, existed } = self.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok((Some(write_class(&class.name, Some(&class))), existed))
    }
}

#[tonic::async_trait]
impl CatalogService for CatalogApi {
    async fn create_resource_class(
        &self,
        request: Request<v1::CreateResourceClassRequest>,
    ) -> Result<Response<v1::CreateResourceClassResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::create_class(wire)?;
        let (resource_class, existed) = self.class(caller, command).await?;
        Ok(Response::new(v1::CreateResourceClassResponse {
            resource_class,
            existed,
        }))
    }

    async fn rename_resource_class(
        &self,
        request: Request<v1::RenameResourceClassRequest>,
    ) -> Result<Response<v1::RenameResourceClassResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::RenameClass {
            from: read_class(&wire.name, "name")?,
            to: read_class(&wire.new_name, "new_name")?,
        };
        let (resource_class, _) = self.class(caller, command).await?;
        Ok(Response::new(v1::RenameResourceClassResponse {
            resource_class,
        }))
    }

    async fn delete_resource_class(
        &self,
        request: Request<v1::DeleteResourceClassRequest>,
    ) -> Result<Response<v1::DeleteResourceClassResponse>, Status> {
        let (wire, caller) = open(request)?;
        self.command(caller, write::delete_class(wire)?).await?;
        Ok(Response::new(v1::DeleteResourceClassResponse {}))
    }

    async fn list_resource_classes(
        &self,
        request: Request<v1::ListResourceClassesRequest>,
    ) -> Result<Response<v1::ListResourceClassesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let state = self.0.state(wire.consistency).await?;
        let custom = state.classes().keys();
        let all: BTreeSet<_> = standard::classes().iter().chain(custom).collect();
        let after = after(&page, read_class)?;
        let rest = all
            .into_iter()
            .filter(|c| after.as_ref().is_none_or(|a| *c > a));
        let (classes, next_page_token) = page.cut(rest, |class| class.to_string());
        let classes = classes.into_iter();
        Ok(Response::new(v1::ListResourceClassesResponse {
            resource_classes: classes
                .map(|class| write_class(class, state.class(class).map(|c| &**c)))
                .collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }

    async fn create_trait(
        &self,
        request: Request<v1::CreateTraitRequest>,
    ) -> Result<Response<v1::CreateTraitResponse>, Status> {
        let (wire, caller) = open(request)?;
        let reply = self.command(caller, write::create_trait(wire)?).await?;
        let Reply::Trait { custom, existed } = reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::CreateTraitResponse {
            r#trait: Some(write_trait(&custom.name, Some(&custom))),
            existed,
        }))
    }

    async fn delete_trait(
        &self,
        request: Request<v1::DeleteTraitRequest>,
    ) -> Result<Response<v1::DeleteTraitResponse>, Status> {
        let (wire, caller) = open(request)?;
        self.command(caller, write::delete_trait(wire)?).await?;
        Ok(Response::new(v1::DeleteTraitResponse {}))
    }

    async fn list_traits(
        &self,
        request: Request<v1::ListTraitsRequest>,
    ) -> Result<Response<v1::ListTraitsResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let state = self.0.state(wire.consistency).await?;
        let after = after(&page, read_trait)?;
        let rest = traits(&state, &wire.prefix, wire.associated)
            .into_iter()
            .filter(|name| after.as_ref().is_none_or(|a| *name > a));
        let (traits, next_page_token) = page.cut(rest, |name| name.to_string());
        let traits = traits.into_iter();
        Ok(Response::new(v1::ListTraitsResponse {
            traits: traits
                .map(|name| write_trait(name, state.custom_trait(name).map(|c| &**c)))
                .collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }
}

/// Returns the traits with this prefix, in order of name.
fn traits<'s>(state: &'s State, prefix: &str, associated: bool) -> BTreeSet<&'s Trait> {
    let custom = state.custom_traits().keys();
    standard::traits()
        .iter()
        .chain(custom)
        .filter(|name| name.as_str().starts_with(prefix))
        .filter(|name| !associated || state.providers_with(name).next().is_some())
        .collect()
}

/// Reads the name after which a page begins.
fn after<N>(
    page: &Page,
    read: impl Fn(&str, &str) -> Result<N, Invalid>,
) -> Result<Option<N>, Invalid> {
    let after = page.after.as_deref();
    after.map(|text| read(text, "page_token")).transpose()
}

fn write_class(name: &ResourceClass, custom: Option<&Custom<ResourceClass>>) -> v1::ResourceClass {
    v1::ResourceClass {
        name: name.to_string(),
        create_time: custom.map(|c| field::timestamp(c.created_at)),
        update_time: custom.map(|c| field::timestamp(c.updated_at)),
    }
}

fn write_trait(name: &Trait, custom: Option<&Custom<Trait>>) -> v1::Trait {
    v1::Trait {
        name: name.to_string(),
        create_time: custom.map(|c| field::timestamp(c.created_at)),
    }
}
