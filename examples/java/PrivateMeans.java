import java.util.Map;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.Validation;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.transforms.SerializableFunction;
import org.apache.beam.sdk.transforms.ToJson;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.PCollectionTuple;
import org.apache.beam.sdk.values.Row;
import org.apache.beam.sdk.values.TypeDescriptors;

/** Private means in a pipeline of Java: lines of agent, value and time become estimates and releases, as lines of JSON. */
public class PrivateMeans {
  static final Schema SAMPLE =
      Schema.builder().addStringField("agent").addDoubleField("value").addDoubleField("time").build();

  public interface Options extends PipelineOptions {
    @Description("CSV lines of agent, value and event time in seconds, without a header")
    @Validation.Required
    String getSamples();

    void setSamples(String path);

    @Description("Folder of the results")
    @Validation.Required
    String getOutput();

    void setOutput(String folder);

    @Description("Address of `python -m meanstream.beam.expansion`")
    @Validation.Required
    String getExpansion();

    void setExpansion(String address);
  }

  static Row parse(String line) {
    String[] parts = line.split(",");
    return Row.withSchema(SAMPLE)
        .addValues(parts[0], Double.parseDouble(parts[1]), Double.parseDouble(parts[2]))
        .build();
  }

  public static void main(String[] args) {
    PipelineOptionsFactory.register(Options.class);
    Options options = PipelineOptionsFactory.fromArgs(args).withValidation().as(Options.class);
    Pipeline pipeline = Pipeline.create(options);
    PCollection<Row> samples =
        pipeline
            .apply("Read", TextIO.read().from(options.getSamples()))
            .apply(
                "Parse",
                MapElements.into(TypeDescriptors.rows())
                    .via((SerializableFunction<String, Row>) PrivateMeans::parse))
            .setRowSchema(SAMPLE);
    PCollectionTuple results =
        samples.apply(
            "Collaborate",
            PythonExternalTransform.<PCollection<Row>, PCollectionTuple>from(
                    "meanstream.beam.rows.CollaborateAgents", options.getExpansion())
                .withKwargs(
                    Map.of("name", "delays", "lower", -30, "upper", 120, "epsilon", 1.0, "delta", 1e-6)));
    for (String name : new String[] {"estimates", "releases"}) {
      PCollection<Row> rows = results.get(name);
      System.out.println(name + ": " + rows.getSchema().getFieldNames());
      rows.apply("Json " + name, ToJson.of())
          .apply("Write " + name, TextIO.write().to(options.getOutput() + "/" + name).withoutSharding());
    }
    pipeline.run().waitUntilFinish();
  }
}
