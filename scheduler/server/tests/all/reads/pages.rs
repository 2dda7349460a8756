//! Every list has pages.
//!
//! Goal: no list answers with everything that there is, which costs in proportion to the state, and no
//! page loses or repeats an entry; that of a filter, entries are left out before pages are divided, and a
//! token goes with its filter. Method: the lists come from the descriptors. Each has a page size and a
//! token, or a bound of its own that is stated here. At a member with several of everything each is read
//! in pages of two and in one, which are the same entries; a negative size and a foreign token are
//! refused by each, so none ignores them.

use std::collections::BTreeSet;

use berth_proto::operation::v1::ListOperationsRequest;
use berth_proto::placement::v1::ListConsumersRequest;
use berth_proto::scheduler::v1::ListVmsRequest;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::Code;

use super::world::World;
use super::{case, raw};

/// A list of at most `berth_domain::revocation::REVOKED_MAX`, which programs take over as a whole.
const WHOLE: &str = "/berth.cluster.v1.ClusterService/ListRevokedCertificates";

/// How many entries a page is requested with.
const SIZE: u64 = 2;

/// The numbers of the fields that make pages.
struct Pages {
    size: u32,
    token: u32,
    next: u32,
    entries: u32,
    /// Of lists with a filter: the number of its field.
    filter: Option<u32>,
}

/// Returns every list of Berth's services, with its request and its response.
fn lists() -> Vec<(String, DescriptorProto, DescriptorProto)> {
    let set = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors");
    let message = |name: &str| {
        let files = set.file.iter();
        let mut found = files.filter_map(|file| {
            let short = name.strip_prefix(&format!(".{}.", file.package()))?;
            file.message_type.iter().find(|m| m.name() == short)
        });
        found.next().expect("a message").clone()
    };
    let mut lists = Vec::new();
    for file in &set.file {
        for service in &file.service {
            let all = service.method.iter();
            let listing = all.filter(|method| method.name().starts_with("List"));
            for method in listing.filter(|_| file.package().starts_with("berth.")) {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let (request, response) = (method.input_type(), method.output_type());
                lists.push((path, message(request), message(response)));
            }
        }
    }
    lists
}

fn number(message: &DescriptorProto, name: &str) -> Option<u32> {
    let mut fields = message.field.iter();
    let field = fields.find(|field| field.name() == name)?;
    u32::try_from(field.number()).ok()
}

fn pages(request: &DescriptorProto, response: &DescriptorProto) -> Option<Pages> {
    let mut repeated = response.field.iter();
    let entries = repeated.find(|field| field.label() == Label::Repeated)?;
    Some(Pages {
        size: number(request, "page_size")?,
        token: number(request, "page_token")?,
        next: number(response, "next_page_token")?,
        entries: u32::try_from(entries.number()).ok()?,
        filter: request
            .field
            .iter()
            .find(|field| field.name() == "filter" && field.r#type() == Type::String)
            .and_then(|field| u32::try_from(field.number()).ok()),
    })
}

#[test]
fn every_list_has_pages() {
    let lists = lists();
    assert!(lists.len() > 20, "the descriptors were read");
    let without = lists
        .iter()
        .filter(|(_, request, response)| pages(request, response).is_none());
    let without: BTreeSet<&str> = without.map(|(path, ..)| path.as_str()).collect();
    assert_eq!(
        without,
        [WHOLE].into(),
        "a list has page_size, page_token and next_page_token"
    );
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Returns the values of a field that have a length.
fn values(message: &[u8], field: u32) -> Vec<Vec<u8>> {
    let (mut rest, mut values) = (message, Vec::new());
    while !rest.is_empty() {
        let key = read_varint(&mut rest);
        match key & 7 {
            0 => drop(read_varint(&mut rest)),
            2 => {
                let length = usize::try_from(read_varint(&mut rest)).expect("a length");
                let (value, after) = rest.split_at(length);
                rest = after;
                if key >> 3 == u64::from(field) {
                    values.push(value.to_vec());
                }
            }
            kind => panic!("no list has a field of kind {kind}"),
        }
    }
    values
}

/// Returns a request with a page size and a token, which overwrite what it has.
fn request(of: &[u8], pages: &Pages, size: i64, token: &[u8]) -> Vec<u8> {
    let mut bytes = of.to_vec();
    varint(u64::from(pages.size) << 3, &mut bytes);
    varint(size.cast_unsigned(), &mut bytes);
    varint(u64::from(pages.token) << 3 | 2, &mut bytes);
    varint(token.len() as u64, &mut bytes);
    bytes.extend_from_slice(token);
    bytes
}

/// Reads a list page by page and returns its pages.
async fn read(
    address: &str,
    path: &str,
    base: &[u8],
    pages: &Pages,
    size: u64,
) -> Vec<Vec<Vec<u8>>> {
    let (mut all, mut token) = (Vec::new(), Vec::new());
    loop {
        let size = i64::try_from(size).expect("a small number");
        let bytes = request(base, pages, size, &token);
        let (messages, end) = raw::call(address, path, &bytes).await;
        end.unwrap_or_else(|status| panic!("{path}: {status}"));
        all.push(values(&messages[0], pages.entries));
        token = values(&messages[0], pages.next).pop().unwrap_or_default();
        if token.is_empty() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_every_list_are_the_list() {
    let world = World::start().await;
    world.make_more().await;
    let address = &world.trio.grpc[world.trio.leader().await];
    let (mut read_lists, mut filtered_lists) = (0, 0);
    for (path, request_type, response_type) in lists() {
        let is_here = case::methods().contains(&path);
        let Some(pages) = pages(&request_type, &response_type).filter(|_| is_here) else {
            continue;
        };
        let base = case::request(&path, &world);
        let base = base.unwrap_or_else(|| panic!("{path} has no case"));
        for base in filtered(&path).into_iter().chain([base]) {
            compare(address, &path, &base, &pages).await;
            if let Some(filter) = pages.filter {
                compare_filtered(address, &path, &base, &pages, filter).await;
            }
        }
        filtered_lists += u32::from(pages.filter.is_some());
        read_lists += 1;
    }
    assert!(read_lists > 15, "only {read_lists} lists were read");
    assert_eq!(filtered_lists, 8, "lists with a filter");
}

/// Returns requests that select entries by an index of their own.
fn filtered(path: &str) -> Vec<Vec<u8>> {
    let method = path.rsplit('/').next().expect("a method");
    match method {
        "ListOperations" => vec![
            ListOperationsRequest {
                running_only: true,
                ..Default::default()
            }
            .encode_to_vec(),
        ],
        "ListVms" => vec![
            ListVmsRequest {
                project: "default".to_owned(),
                ..Default::default()
            }
            .encode_to_vec(),
        ],
        "ListConsumers" => vec![
            ListConsumersRequest {
                project: "p".to_owned(),
                ..Default::default()
            }
            .encode_to_vec(),
        ],
        _ => Vec::new(),
    }
}

/// Compares a list in pages of [`SIZE`] with the whole of it, and has the wrong ones refused.
async fn compare(address: &str, path: &str, base: &[u8], pages: &Pages) {
    let whole = read(address, path, base, pages, 1_000).await.concat();
    let parts = read(address, path, base, pages, SIZE).await;
    assert!(whole.len() > 2, "{path} has {} entries", whole.len());
    let is_bounded = |page: &Vec<Vec<u8>>| page.len() as u64 <= SIZE;
    assert!(parts.iter().all(is_bounded), "{path}");
    assert_eq!(
        parts.len(),
        whole.len().div_ceil(2),
        "{path} has empty pages"
    );
    assert_eq!(parts.concat(), whole, "{path}");
    for wrong in [
        request(base, pages, -1, b""),
        request(base, pages, 2, b"a foreign one"),
    ] {
        let (_, end) = raw::call(address, path, &wrong).await;
        let code = end.map_err(|status| status.code());
        assert_eq!(code, Err(Code::InvalidArgument), "{path}");
    }
}

/// Returns a request with a filter.
fn with_filter(of: &[u8], number: u32, filter: &str) -> Vec<u8> {
    let mut bytes = of.to_vec();
    varint(u64::from(number) << 3 | 2, &mut bytes);
    varint(filter.len() as u64, &mut bytes);
    bytes.extend_from_slice(filter.as_bytes());
    bytes
}

/// Returns the name of an entry of a list.
fn name_of(path: &str, entry: &[u8]) -> String {
    let names = match path.ends_with("/ListHosts") {
        true => values(&values(entry, 1)[0], 1),
        false => values(entry, 1),
    };
    String::from_utf8(names[0].clone()).expect("a name")
}

/// Leaves the first page out by the names of its entries: the others are listed without a short or an
/// empty page, and no token is taken by another filter.
async fn compare_filtered(address: &str, path: &str, base: &[u8], pages: &Pages, filter: u32) {
    let whole = read(address, path, base, pages, 1_000).await.concat();
    let field = match path.ends_with("/ListHosts") {
        true => "host.name",
        false => "name",
    };
    let name = |entry: &Vec<u8>| name_of(path, entry);
    let [first, second] = [name(&whole[0]), name(&whole[1])];
    // A name is taken with its collection and without.
    let short = second.rsplit('/').next().expect("a part");
    let text = format!("NOT ({field} = \"{first}\" OR {field} = \"{short}\")");
    let base = with_filter(base, filter, &text);
    let parts = read(address, path, &base, pages, 1).await;
    assert!(parts.iter().all(|page| page.len() == 1), "{path}");
    assert_eq!(parts.concat(), whole[2..], "{path}");
    let none = with_filter(&base, filter, &format!("{field} = \"nothing\""));
    let parts = read(address, path, &none, pages, SIZE).await;
    assert_eq!(parts, [Vec::<Vec<u8>>::new()], "{path}");
    let all = with_filter(&base, filter, &format!("{field}:*"));
    let (messages, end) = raw::call(address, path, &request(&all, pages, 1, b"")).await;
    end.unwrap_or_else(|status| panic!("{path}: {status}"));
    let token = values(&messages[0], pages.next).pop().expect("a token");
    for other in [base, with_filter(&all, filter, "")] {
        let (_, end) = raw::call(address, path, &request(&other, pages, 1, &token)).await;
        let refused = end.expect_err("a token of another filter");
        assert_eq!(refused.code(), Code::InvalidArgument, "{path}");
        assert!(
            refused.message().contains("another filter"),
            "{path}: {refused}"
        );
    }
    for wrong in ["nothing = 1", "name", "((("] {
        let wrong = with_filter(&all, filter, wrong);
        let (_, end) = raw::call(address, path, &wrong).await;
        let refused = end.expect_err("no filter");
        assert_eq!(refused.code(), Code::InvalidArgument, "{path}");
        assert!(
            refused.message().starts_with("filter: at byte"),
            "{path}: {refused}"
        );
    }
}
