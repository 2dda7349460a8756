//! `berth.placement.v1.CatalogService`.

use std::ops::Bound;

use berth_decide::{Action, DecisionRequest};
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
use imbl::OrdMap;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::{Caller, open};
use super::{refusal, write};

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
        let after = after(&page, read_class)?.map_or(Bound::Unbounded, Bound::Excluded);
        let mut known: Vec<&ResourceClass> = standard::classes().iter().collect();
        known.sort();
        let rest = names(&known, state.classes(), after);
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
        let rest = traits(&state, &wire.prefix, after)
            .filter(|name| !wire.associated || state.providers_with(name).next().is_some());
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

/// Returns the traits with this prefix that come after a name, in order of name.
fn traits<'s>(
    state: &'s State,
    prefix: &'s str,
    after: Option<Trait>,
) -> impl Iterator<Item = &'s Trait> + 's {
    let first = Trait::new(prefix).ok();
    let from = match (after, first) {
        (Some(after), Some(first)) if after < first => Bound::Included(first),
        (Some(after), _) => Bound::Excluded(after),
        (None, Some(first)) => Bound::Included(first),
        // A prefix that no name can begin with, or none at all.
        (None, None) => Bound::Unbounded,
    };
    let known: Vec<&Trait> = standard::traits().iter().collect();
    names(&known, state.custom_traits(), from).take_while(move |name| {
        // In order: behind the first that has it they all have it, up to the last.
        name.as_str().starts_with(prefix)
    })
}

/// Returns the standard names, which come in order, and the custom ones together, in order, from a
/// place on. None before that place is looked at, so that a page costs as much as it holds.
fn names<'s, N: Ord + Clone, V>(
    standard: &[&'s N],
    custom: &'s OrdMap<N, V>,
    from: Bound<N>,
) -> impl Iterator<Item = &'s N> + use<'s, N, V> {
    let is_before = |name: &&N| match &from {
        Bound::Unbounded => false,
        Bound::Included(first) => *name < first,
        Bound::Excluded(last) => *name <= last,
    };
    let standard = standard[standard.partition_point(is_before)..].to_vec();
    let mut standard = standard.into_iter().peekable();
    let custom = custom.range((from, Bound::Unbounded)).map(|(name, _)| name);
    let mut custom = custom.peekable();
    std::iter::from_fn(move || match (standard.peek(), custom.peek()) {
        (Some(known), Some(own)) if known < own => standard.next(),
        (Some(_), None) => standard.next(),
        (Some(_) | None, _) => custom.next(),
    })
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CUSTOM: usize = 5_000;

    fn custom() -> OrdMap<Trait, ()> {
        let name = |number| Trait::new(&format!("CUSTOM_{number:05}")).unwrap();
        (0..CUSTOM).map(|number| (name(number), ())).collect()
    }

    /// Goal: a page of names costs as much as it holds, wherever it begins. Method: all pages of the
    /// standard and many custom names, each read from where the one before ended; the names that are
    /// looked at are counted, and are as many as there are, plus the look ahead of each page.
    #[test]
    fn all_pages_together_look_at_each_name_once() {
        let (custom, page) = (custom(), Page::new(100, "").unwrap());
        let known: Vec<&Trait> = standard::traits().iter().collect();
        let (mut all, mut looked_at, mut pages) = (Vec::new(), 0, 0);
        let mut from = Bound::Unbounded;
        loop {
            let rest = names(&known, &custom, from).inspect(|_| looked_at += 1);
            let (names, next) = page.cut(rest, |name| name.to_string());
            all.extend(names.into_iter().cloned());
            pages += 1;
            if next.is_empty() {
                break;
            }
            from = Bound::Excluded(all.last().unwrap().clone());
        }
        let expected: BTreeSet<&Trait> = custom.keys().chain(known.iter().copied()).collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), Vec::from_iter(expected));
        assert_eq!(looked_at, all.len() + pages - 1);
    }

    /// Goal: a prefix is found where it begins, and what is no beginning of a name nowhere.
    #[test]
    fn a_prefix_is_looked_up() {
        let state = State::new();
        let count = |prefix: &str, after: Option<&str>| {
            let after = after.map(|name| Trait::new(name).unwrap());
            traits(&state, prefix, after).count()
        };
        let with = |prefix: &str| {
            let all = standard::traits().iter();
            all.filter(|name| name.as_str().starts_with(prefix)).count()
        };
        assert!(with("HW_CPU") > 0);
        for prefix in ["", "HW_CPU", "HW_CPU_X86_AVX", "NONE", "hw", "Z"] {
            assert_eq!(count(prefix, None), with(prefix), "{prefix}");
            assert_eq!(count(prefix, Some("A")), with(prefix), "{prefix}");
            assert_eq!(count(prefix, Some("ZZ")), 0, "{prefix}");
        }
        assert_eq!(count(&"X".repeat(300), None), 0);
    }
}
