//! Goal: the record of a guest, which libvirt stores with the domain, keeps its form. A guest that
//! was started by an earlier build still runs under this one.
//!
//! Method: `testdata/guest-record.json` is a record as it was written before any name in the code
//! changed, with every optional field set. It is parsed and rendered to the same bytes: a field
//! with another serialized name is dropped or refused.

use berth_driver::DomainSpec;

const RECORD: &str = include_str!("../../testdata/guest-record.json");

#[test]
fn a_recorded_guest_is_parsed_and_rendered_to_the_same_bytes() {
    let guest: DomainSpec = serde_json::from_str(RECORD).unwrap();
    assert_eq!(serde_json::to_string(&guest).unwrap(), RECORD.trim_end());
}

#[test]
fn the_element_of_libvirt_carries_the_record() {
    let record = RECORD.trim_end().replace('"', "&quot;");
    let element = format!("<guest xmlns=\"urn:berth:guest:1\"><record>{record}</record></guest>");
    let guest = berth_driver::xml::metadata::parse(&element).unwrap();
    assert_eq!(serde_json::to_string(&guest).unwrap(), RECORD.trim_end());
}
