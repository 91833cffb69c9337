// What nvidia-smi says of GPUs, in the forms of several drivers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

// Of an Ampere GPU or a newer one; `form`: "event" since driver 535, "throttle" before.
std::string gpu(const std::string& bus, const std::string& inside = "",
                const std::string& form = "event", const std::string& slow = "") {
  std::string reasons;
  for (const char* reason : {"gpu_idle", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown",
                             "hw_power_brake_slowdown", "sw_thermal_slowdown"}) {
    reasons += fmt::format("<clocks_{0}_reason_{1}>{2}</clocks_{0}_reason_{1}>\n", form, reason,
                           slow == reason ? "Active" : "Not Active");
  }
  return fmt::format(
      "<gpu id=\"{0}\">\n<product_name>NVIDIA A100-SXM4-80GB</product_name>\n{1}\n"
      "<clocks_{2}_reasons>\n{3}</clocks_{2}_reasons>\n</gpu>\n",
      bus, inside, form, reasons);
}
std::string memory(const std::string& dram, const std::string& pending,
                   const std::string& failure) {
  return fmt::format(
      "<ecc_errors><volatile><sram_correctable>0</sram_correctable>"
      "<sram_uncorrectable>0</sram_uncorrectable><dram_correctable>3</dram_correctable>"
      "<dram_uncorrectable>{}</dram_uncorrectable></volatile><aggregate>"
      "<dram_uncorrectable>7</dram_uncorrectable></aggregate></ecc_errors>"
      "<retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>"
      "<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>1</"
      "remapped_row_unc>"
      "<remapped_row_pending>{}</remapped_row_pending>"
      "<remapped_row_failure>{}</remapped_row_failure></remapped_rows>",
      dram, pending, failure);
}
Check health(const std::string& gpus, const std::string& log = "") {
  return health_check(
      {.there = true,
       .text = "<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n" + gpus + "</nvidia_smi_log>\n",
       .xids = log});
}

TEST_CASE("GPU health: nothing is wrong, or nothing is known") {
  const Check well = health(gpu("00000000:3B:00.0", memory("0", "No", "No")) +
                            gpu("00000000:5E:00.0", "", "throttle", "sw_power_cap"));
  CHECK(well.state == State::kOk);
  CHECK(well.value == "2 GPUs, no fault is known");
  CHECK(health_check({}).value == "not known: no nvidia-smi");
  CHECK(health_check({}).state == State::kOk);
  // Fields that a card does not have, as of a GeForce, or of a GPU in MIG mode.
  for (const char* none : {"N/A", "[N/A]", "[Not Supported]",
                           "Requested functionality has been "
                           "deprecated",
                           ""}) {
    CAPTURE(none);
    const std::string absent = memory(none, none, none) + "<gpu_recovery_action>" + none +
                               "</gpu_recovery_action><mig_mode><current_mig>Enabled</current_mig>"
                               "</mig_mode>";
    CHECK(health(gpu("00000000:3B:00.0", absent)).state == State::kOk);
  }
  for (const char* no_gpu :
       {"No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
        "driver. Make sure ...\n"}) {
    CHECK(health_check({.there = true, .status = 9, .text = no_gpu}).state == State::kOk);
  }
}

TEST_CASE("GPU health: memory that fails") {
  const Check errors =
      health(gpu("00000000:3B:00.0") + gpu("00000000:5E:00.0", memory("2", "No", "No")));
  CHECK(errors.state == State::kWarn);
  CHECK(errors.value == "GPU 1: 2 uncorrectable ECC errors since its start");
  CHECK(errors.fix == "nvidia-smi -r -i 1   # as root, when nothing runs on it; or reboot");
  const Check pending = health(gpu("00000000:3B:00.0", memory("0", "Yes", "No")));
  CHECK(pending.state == State::kFail);
  CHECK(pending.fix.starts_with("nvidia-smi -r -i 0"));
  const Check failed =
      health(gpu("00000000:3B:00.0") + gpu("00000000:5E:00.0", memory("1", "Yes", "Yes")) +
             gpu("00000000:86:00.0"));
  CHECK(failed.state == State::kFail);
  CHECK(failed.fix == "export CUDA_VISIBLE_DEVICES=0,2   # GPU 1 has to be exchanged");
  CHECK(health(gpu("00000000:3B:00.0", memory("0", "No", "Yes"))).fix == "exchange GPU 0");
  // Drivers before 450, and GPUs before Ampere.
  const std::string volta =
      "<ecc_errors><volatile><single_bit><device_memory>0</device_memory><total>0</total></"
      "single_bit>"
      "<double_bit><device_memory>1</device_memory><total>1</total></double_bit></volatile>"
      "</ecc_errors><retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>";
  CHECK(health(gpu("00000000:3B:00.0", volta, "throttle")).value ==
        "GPU 0: its memory waits for a reset to leave out a bad place, 1 uncorrectable ECC error "
        "since its start");
  // Drivers from 555 on.
  CHECK(health(gpu("0",
                   "<ecc_errors><volatile><sram_uncorrectable_parity>1"
                   "</sram_uncorrectable_parity></volatile></ecc_errors>"))
            .state == State::kWarn);
}

TEST_CASE("GPU health: clocks that are held down") {
  for (const char* form : {"event", "throttle"}) {
    CHECK(health(gpu("0", "", form, "hw_thermal_slowdown")).value ==
          "GPU 0: heat holds its clock down");
    CHECK(health(gpu("0", "", form, "hw_power_brake_slowdown")).value ==
          "GPU 0: the power supply holds its clock down");
    CHECK(health(gpu("0", "", form, "hw_slowdown")).state == State::kWarn);
    CHECK(health(gpu("0", "", form, "gpu_idle")).state == State::kOk);
  }
}

TEST_CASE("GPU health: Xid errors of the hardware, and a GPU that the driver has lost") {
  const std::string log =
      "[12.5] NVRM: Xid (PCI:0000:5e:00): 13, pid=7, name=a program's own\n"
      "[12.5] NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
      "[12.6] NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>'\n";
  const Check xid = health(gpu("00000000:3B:00.0") + gpu("00000000:5E:00.0"), log);
  CHECK(xid.state == State::kWarn);
  CHECK(xid.value == "GPU 1: Xid 79 since the host's start");
  CHECK(xid.fix.starts_with("reboot"));
  CHECK(health(gpu("00000000:3B:00.0"), "NVRM: Xid (PCI:0000:3b:00): 31, pid=7").state ==
        State::kOk);
  CHECK(health(gpu("00000000:3B:00.0"), "NVRM: Xid (PCI:0000:3b:00): 94, pid=7")
            .fix.starts_with("nvidia-smi -r -i 0"));
  const Check wanted =
      health(gpu("00000000:3B:00.0", "<gpu_recovery_action>Reboot</gpu_recovery_action>"));
  CHECK(wanted.state == State::kFail);
  CHECK(wanted.value == "GPU 0: the driver wants: Reboot");
  const Check lost = health_check({.there = true,
                                   .status = 15,
                                   .text = "Unable to determine the device handle for GPU "
                                           "0000:3B:00.0: GPU is lost.  Reboot the system to "
                                           "recover this GPU\n"});
  CHECK(lost.state == State::kFail);
  CHECK(lost.fix.starts_with("reboot"));
}

}  // namespace
}  // namespace fsdp::tools::doctor
