#include "intarsia/train/monitors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace intarsia::train {
namespace {

namespace fs = std::filesystem;

std::string fresh_folder(const char* name) {
  const std::string folder = testing::TempDir() + "monitors_" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int files_in(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(CsvSeries, HasDeepSpeedsNameAndColumnsAndContinuesAfterTheSampleItResumesFrom) {
  const std::string folder = fresh_folder("csv"), path = folder + "/Train_Samples_lr.csv";
  {
    CsvSeries series(folder, "Train/Samples/lr", 0);
    for (int samples = 4; samples <= 12; samples += 4) series.add(samples, 1e-5 * samples);
  }
  std::ofstream(path, std::ios::app) << "16,0.0";  // torn
  CsvSeries(folder, "Train/Samples/lr", 8).add(12, 0.5);
  EXPECT_EQ(text_of(path), "step,lr\r\n4,4e-05\r\n8,8e-05\r\n12,0.5\r\n");
}

TEST(CsvSeries, ANewRunOfTheSameJobIsWrittenBehindTheOldOne) {
  const std::string folder = fresh_folder("csv_again");
  for (int run = 0; run < 2; ++run) CsvSeries(folder, "a", 0).add(4, run);
  EXPECT_EQ(text_of(folder + "/a.csv"), "step,a\r\n4,0\r\n4,1\r\n");
}

TEST(Monitors, WriteWhereTheirSectionsSay) {
  const std::string run = fresh_folder("run"), elsewhere = fresh_folder("elsewhere");
  const MonitorOptions options{.tensorboard = {true, elsewhere, "job"}, .csv = {true, "", "mine"}, .loss_scale = true};
  Monitors(options, run, 0, 0, 100).write({.step = 1, .loss = 2, .lr = 0.5, .loss_scale = 8}, 4);
  EXPECT_EQ(files_in(run + "/tb"), 1);
  EXPECT_EQ(files_in(elsewhere + "/job"), 1);
  EXPECT_EQ(text_of(run + "/csv/mine/Train_Samples_loss_scale.csv"), "step,loss_scale\r\n4,8\r\n");
  const std::string events = text_of(fs::directory_iterator(elsewhere + "/job")->path().string());
  EXPECT_NE(events.find("Train/Samples/train_loss"), std::string::npos);
  Monitors(options, run, 1, 4, 100).write({.step = 2}, 8);
  EXPECT_EQ(files_in(run + "/tb"), 2);
}

TEST(Monitors, TrainingGoesOnWithoutAMonitorThatCannotWrite) {
  const std::string run = fresh_folder("blocked");
  std::ofstream(run + "/tb") << "a file in the folder's place";
  std::ofstream(run + "/csv") << "and here";
  MonitorOptions options;
  options.csv = {true, "", "job"};
  Monitors monitors(options, run, 0, 0, 100);
  monitors.write({.step = 1}, 4);
  EXPECT_EQ(text_of(run + "/csv"), "and here");
}

TEST(Monitors, NoEventsWhereTheSectionIsOff) {
  const std::string run = fresh_folder("off");
  MonitorOptions options;
  options.events = false;
  Monitors(options, run, 0, 0, 100).write({.step = 1}, 4);
  EXPECT_EQ(files_in(run), 0);
}

}  // namespace
}  // namespace intarsia::train
