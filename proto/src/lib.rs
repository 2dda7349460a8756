//! The wire: Berth's protobuf packages and their conversions to the domain
