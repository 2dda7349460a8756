//! Parameters for a call, as libvirt's fixed-size structures.

use std::ffi::{CString, c_char, c_uint};

use super::connection::c_string;
use super::error::Error;
use super::ffi::{self, Parameter, ParameterValue, typed};

/// Parameters for a call, with the strings that they point to.
#[derive(Default)]
pub(super) struct ParameterList {
    parameters: Vec<Parameter>,
    strings: Vec<CString>,
}

impl ParameterList {
    /// Adds a string. A name may occur more than once where libvirt takes a list.
    pub(super) fn push_string(&mut self, name: &'static str, value: &str) -> Result<(), Error> {
        let string = c_string(value, name)?;
        // The characters stay where they are when the CString moves into the vector.
        // libvirt only reads them, although the type is mutable.
        let value = ParameterValue {
            string: string.as_ptr().cast_mut(),
        };
        self.strings.push(string);
        self.parameters.push(Parameter {
            field: field(name),
            kind: typed::STRING,
            value,
        });
        Ok(())
    }

    /// Adds a number.
    pub(super) fn push_number(&mut self, name: &'static str, number: u64) {
        let value = ParameterValue { ulong: number };
        self.parameters.push(Parameter {
            field: field(name),
            kind: typed::ULLONG,
            value,
        });
    }

    pub(super) fn as_raw(&mut self) -> (*mut Parameter, c_uint) {
        let count = c_uint::try_from(self.parameters.len()).expect("a handful of parameters");
        (self.parameters.as_mut_ptr(), count)
    }
}

/// The name of a parameter in its fixed-size field.
fn field(name: &str) -> [c_char; ffi::FIELD_LENGTH] {
    let mut field = [0; ffi::FIELD_LENGTH];
    // One byte stays zero: the end of the string.
    for (slot, byte) in field[..ffi::FIELD_LENGTH - 1].iter_mut().zip(name.bytes()) {
        *slot = byte as c_char;
    }
    field
}
